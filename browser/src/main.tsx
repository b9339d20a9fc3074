import { render } from "preact";
import { Explorer } from "./explorer";
import { listModels, Model, UNCHANGED } from "./model";
import { frame } from "./shell";
import "./style.css";
import { LANGUAGES, words } from "./words";
import { decoderIds, read, Writing } from "./writing";

const language = new URLSearchParams(location.search).get("lang") ?? "en";
if (language in LANGUAGES) document.documentElement.lang = language;
document.title = words().title;
frame();
const place = document.querySelector("#explorer")!;
listModels()
  .then((entries) => {
    if (!entries.length) throw new Error(words().noModels);
    render(<Explorer entries={entries} />, place);
  })
  .catch((error: Error) => render(<p class="error" role="alert">{error.message}</p>, place));

/** For the console, and for comparisons with Python. */
const zoo = { Model, listModels, read, decoderIds, Writing, UNCHANGED };
declare global {
  var zoo: object;
}
globalThis.zoo = zoo;
