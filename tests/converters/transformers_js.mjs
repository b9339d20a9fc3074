// Runs exports in transformers.js and prints what it makes of texts: node transformers_js.mjs MODULE FOLDER REQUESTS.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [library, parent, file] = process.argv.slice(2);
const js = await import(pathToFileURL(library));
js.env.localModelPath = parent;
js.env.allowRemoteModels = false;
js.env.useFSCache = false;

const rows = (tensor) => tensor.tolist().map((row) => row.map(Number));
const { models, tokenizers } = JSON.parse(readFileSync(file));
const answers = { types: {}, models: {}, tokenizers: {} };
for (const [auto, model] of Object.entries(js)) {
  const mappings = model?.MODEL_CLASS_MAPPINGS;
  if (mappings) answers.types[auto] = mappings.flatMap((mapping) => [...mapping.keys()]);
}
for (const [name, { auto, ids, mask, start, settings }] of Object.entries(models)) {
  const tensor = (numbers) =>
    new js.Tensor("int64", BigInt64Array.from(numbers.flat().map(BigInt)), [numbers.length, numbers[0].length]);
  const inputs = { input_ids: tensor(ids), attention_mask: tensor(mask) };
  const model = await js[auto].from_pretrained(name);
  const outputs = await model(start ? { ...inputs, decoder_input_ids: tensor(start) } : inputs);
  const answer = (answers.models[name] = { values: (outputs.logits ?? outputs.last_hidden_state).tolist() });
  if (settings) answer.tokens = rows(await model.generate({ ...inputs, ...settings }));
  await model.dispose();
}
for (const [name, texts] of Object.entries(tokenizers)) {
  const tokenizer = await js.AutoTokenizer.from_pretrained(name);
  const ids = texts.map((text) => Array.from(tokenizer.encode(text), Number));
  const decode = (numbers) => tokenizer.decode(numbers, { skip_special_tokens: true });
  answers.tokenizers[name] = { ids, texts: ids.map((numbers) => (numbers.length ? decode(numbers) : "")) };
}
console.log(JSON.stringify(answers));
