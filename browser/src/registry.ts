// Portuguese for what models and quirks are called in the registry, which is in English.

import type { Form } from "./about";
import { local, words } from "./words";

const PORTUGUESE: Record<string, string> = {
  "Translates everyday English into Portuguese.": "Traduz inglês cotidiano para o português.",
  "Translates everyday English into Portuguese, with every bug of the original.":
    "Traduz inglês cotidiano para o português, com todos os erros do original.",
  "Goes on writing everyday English, character by character.": "Continua um texto em inglês cotidiano, caractere por caractere.",
  "Goes on writing English in the manner of old books.": "Continua um texto em inglês à maneira de livros antigos.",
  "Says whether a sentence is English or Portuguese.": "Diz se uma frase está em inglês ou em português.",
  "Fills the gaps in texts of old books.": "Preenche lacunas em textos de livros antigos.",
  "Guesses masked words of old books.": "Adivinha palavras mascaradas de livros antigos.",
  "Guesses masked words of everyday English.": "Adivinha palavras mascaradas em inglês cotidiano.",

  "as it was trained": "como foi treinado",
  "without its quirks": "sem os seus defeitos",
  "The same weights in the design without the original's defects.": "Os mesmos pesos no desenho sem os defeitos do original.",
  "the whole target at once": "o alvo inteiro de uma vez",
  "A forward of a whole target in evaluation mode.": "O cálculo de um alvo inteiro no modo de avaliação.",
  "Padding takes part in attention like any other token; a padding mask is not read.":
    "O preenchimento participa da atenção como qualquer token; a máscara não é lida.",
  "All layers of a stack are one module.": "Todas as camadas de uma pilha são um só módulo.",
  "Attention weights of a query and a key sum to 1 over the batch instead of the keys.":
    "Os pesos de uma consulta e uma chave somam 1 sobre o lote, e não sobre as chaves.",
  "Decoder self-attention has no causal mask.": "A autoatenção do decodificador não tem máscara causal.",
  "Odd columns of the position table use exponent j/d instead of (j-1)/d.":
    "As colunas ímpares da tabela de posições usam o expoente j/d em vez de (j-1)/d.",
  "Decoder self-attention is causal in training mode only. In evaluation mode a whole target sees its later tokens; in training mode masks are unread and a cache is seen from its start.":
    "A autoatenção do decodificador só é causal no treino. Na avaliação um alvo inteiro vê os seus tokens seguintes; no treino as máscaras não são lidas e um cache é visto desde o início.",
  "Every call of the decoder counts positions from 0, so in stepwise decoding every generated token has position 0.":
    "Cada chamada do decodificador conta as posições a partir de 0; passo a passo, todo token gerado tem a posição 0.",
  "Cross attention takes queries and keys from the encoder and values from the decoder, with the residual on the values; both must have one length, a token sees later ones, and nothing can be generated stepwise.":
    "A atenção cruzada toma consultas e chaves do codificador e valores do decodificador, com o residual nos valores; os dois precisam ter o mesmo comprimento, um token vê os seguintes, e nada pode ser gerado passo a passo.",
  "Decoder self-attention has neither a residual connection nor a norm.":
    "A autoatenção do decodificador não tem conexão residual nem norma.",
  "Attention scores are divided by sqrt(hidden_size) instead of sqrt(head_dim).":
    "As pontuações são divididas por sqrt(hidden_size) em vez de sqrt(head_dim).",
  "Cross attention runs with the weights of self-attention; its own stay unused.":
    "A atenção cruzada usa os pesos da autoatenção; os próprios ficam sem uso.",
  "The norm after cross attention serves again after the feed-forward network.":
    "A norma depois da atenção cruzada é usada outra vez depois da rede feed-forward.",
  "The classifier takes its maximum over padding, too.": "O máximo do classificador inclui o preenchimento.",

  "token embedding": "embedding dos tokens",
  "learned positions": "posições aprendidas",
  "sinusoidal positions": "posições senoidais",
  "rotary positions": "posições rotatórias",
  "rotary-by-layer positions": "posições rotatórias por camada",
  "t5 positions": "posições do t5",
  "self-attention": "autoatenção",
  "causal self-attention": "autoatenção causal",
  "cross-attention": "atenção cruzada",
  "gated feed-forward": "feed-forward com porta",
  "cls pooling": "primeiro token (cls)",
  "max pooling": "máximo sobre os tokens",
  linear: "linear",
  LayerNorm: "LayerNorm",
  BiaslessLayerNorm: "LayerNorm sem viés",
  RMSNorm: "RMSNorm",
  "feed-forward": "feed-forward",
  "dense layer": "camada densa",
  English: "inglês",
  Portuguese: "português",

  "# heads of #": "# cabeças de #",
  "# for keys and values": "# para chaves e valores",
  "dropout #": "dropout #",
  "no biases": "sem vieses",
  "no bias": "sem viés",
  "window # in # of # layers": "janela de # em # de # camadas",
  bias: "viés",
  "times sqrt(#)": "vezes sqrt(#)",
  "weights of #": "pesos de #",
  "unscaled scores": "pontuações sem escala",
  "scores / sqrt(hidden size)": "pontuações / sqrt(largura)",
  "masked-rows-uniform": "linhas mascaradas uniformes",
  "reads the encoder's output": "lê a saída do codificador",
  "added to the embeddings": "somadas aos embeddings",
  "at most #": "no máximo #",
  "on queries and keys in every layer": "sobre consultas e chaves em todas as camadas",
  "on the scores in every layer": "sobre as pontuações em todas as camadas",

  "causal mask in training alone": "máscara causal só no treino",
  "causal mask": "máscara causal",
  "padding mask": "máscara de preenchimento",
  "over the batch": "sobre o lote",
  "all W of self-attention": "todos os W da autoatenção",
  "in every step": "em todo passo",
  "max over tokens and padding of h": "máximo de h sobre os tokens e o preenchimento",
  "encoder's output": "saída do codificador",
  "max over tokens of h": "máximo de h sobre os tokens",
  "mean over tokens of h": "média de h sobre os tokens",
  "q, k rotated by position": "q, k girados por posição",
  "scores + bias": "pontuações + viés",
  "P[position]": "P[posição]",
};

/** A phrase of the registry in the page's language, as it is where there is no translation. */
export const phrase = (english: string): string =>
  document.documentElement.lang === "pt" ? (PORTUGUESE[english] ?? english) : english;

/** What a form does. */
export const formNote = ({ description, stepwise, target }: Form): string =>
  phrase(description) + (stepwise || target === "source" ? "" : ` ${words().readsFirst}`);

/** Sizes and other facts of a part; translations have # for numbers and names. */
export const details = (english: string): string =>
  english.split(", ").map((fact) => {
    const names: string[] = [];
    const general = fact.replace(/(?<![\w.])\d+(\.\d+)?|(?<=weights of )\S+/g, (name) => {
      names.push(/[a-z]/.test(name) ? name : local(name));
      return "#";
    });
    return phrase(general).replaceAll("#", () => names.shift()!);
  }).join(", ");

const IN_FORMULAS = [
  "causal mask in training alone", "causal mask", "padding mask", "over the batch", "all W of self-attention", "in every step",
  "encoder's output", "max over tokens and padding of h", "max over tokens of h", "mean over tokens of h",
  "q, k rotated by position", "scores + bias", "P[position]",
];

/** A formula with its words in the page's language. */
export const formula = (english: string): string =>
  IN_FORMULAS.reduce((text, words) => text.replaceAll(words, phrase(words)), english);
