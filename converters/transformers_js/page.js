// Runs the model of this folder in the browser. Nothing comes from elsewhere, and no text leaves the page.
import * as js from "./runtime/transformers.min.js";

const NEW_TOKENS = 64;
const SHOWN = 5;
const AUTO = {
  "causal-lm": "AutoModelForCausalLM",
  "seq2seq-lm": "AutoModelForSeq2SeqLM",
  "masked-lm": "AutoModelForMaskedLM",
  "sequence-classification": "AutoModelForSequenceClassification",
  "token-classification": "AutoModelForTokenClassification",
  "feature-extraction": "AutoModel",
};

const { task, target } = document.body.dataset;
const limit = Number(document.body.dataset.limit || Infinity);
const button = document.querySelector("button");
const output = document.querySelector("output");

js.env.allowRemoteModels = false;
js.env.allowLocalModels = true;
js.env.localModelPath = new URL(".", import.meta.url).href;
// Files next to the page need no second copy in the browser.
js.env.useBrowserCache = js.env.useWasmCache = false;
const engine = new URL("./runtime/ort-wasm-simd-threaded.asyncify", import.meta.url).href;
js.env.backends.onnx.wasm.wasmPaths = { mjs: `${engine}.mjs`, wasm: `${engine}.wasm` };
js.env.backends.onnx.wasm.numThreads = 1;

// The last of several ids may end the text, which a prompt shall not.
function open(inputs) {
  const ids = inputs.input_ids.tolist()[0].map(Number);
  if (ids.length < 2 || ids.at(-1) !== source.eos_token_id) return inputs;
  return Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, tensor.slice(null, [0, -1])]));
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function ranked(scores, name) {
  const shares = js.softmax(scores);
  const places = [...shares.keys()].sort((one, other) => shares[other] - shares[one]);
  return places.slice(0, SHOWN).map((place) => `${name(place)}  ${percent(shares[place])}`).join("\n");
}

async function generated(inputs) {
  let written = "";
  const streamer = new js.TextStreamer(writer, {
    skip_prompt: true,
    skip_special_tokens: true,
    callback_function: (piece) => (output.textContent = written += piece),
  });
  const first = task === "causal-lm" ? inputs.input_ids.dims[1] : 1;
  // Nothing reads the last token.
  const max_new_tokens = Math.min(NEW_TOKENS, limit + 1 - first);
  const ids = await model.generate({ ...inputs, max_new_tokens, do_sample: false, streamer });
  return writer.decode(ids.tolist()[0].slice(first), { skip_special_tokens: true });
}

const label = (place) => model.config.id2label?.[place] ?? `label ${place}`;
const token = (id) => source.decode([id]);
const RUN = {
  "causal-lm": (inputs) => generated(open(inputs)),
  "seq2seq-lm": generated,
  "masked-lm": async (inputs) => {
    const { logits } = await model(inputs);
    const hidden = inputs.input_ids.tolist()[0].map(Number).indexOf(source.mask_token_id);
    if (hidden < 0) throw new Error(`Write ${source.mask_token} where a word is to be guessed.`);
    return ranked(logits.tolist()[0][hidden], token);
  },
  "sequence-classification": async (inputs) => ranked((await model(inputs)).logits.tolist()[0], label),
  "token-classification": async (inputs) => {
    const { logits } = await model(inputs);
    const best = logits.tolist()[0].map((scores) => scores.indexOf(Math.max(...scores)));
    return inputs.input_ids.tolist()[0].map((id, place) => `${token(Number(id))}  ${label(best[place])}`).join("\n");
  },
  "feature-extraction": async (inputs) => {
    const { last_hidden_state: states } = await model(inputs);
    const rows = states.tolist()[0].map((row) => row.slice(0, SHOWN).map((value) => value.toFixed(4)).join("  "));
    return `${states.dims[1]} vectors of ${states.dims[2]} numbers, which begin:\n${rows.join("\n")}`;
  },
};

function read(text) {
  const inputs = source(text);
  const length = inputs.input_ids.dims[1];
  if (length > limit) throw new Error(`The text has ${length} tokens; the model reads ${limit} at most.`);
  return inputs;
}

async function run(work, done) {
  button.disabled = true;
  document.body.dataset.state = "busy";
  try {
    output.textContent = await work();
    document.body.dataset.state = done;
  } catch (error) {
    output.textContent = error.message;
    document.body.dataset.state = "failed";
  }
  button.disabled = false;
}

let source, writer, model;
await run(async () => {
  source = await js.AutoTokenizer.from_pretrained(".");
  writer = target ? await js.AutoTokenizer.from_pretrained(target) : source;
  model = await js[AUTO[task]].from_pretrained(".");
  return "";
}, "ready");

document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run(async () => RUN[task](read(document.querySelector("#text").value)), "done");
});
