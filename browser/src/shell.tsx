// The frame of every page: links, language, colours, and the copy for offline use.

import { render } from "preact";
import { useState } from "preact/hooks";
import { LANGUAGES, words } from "./words";

const LESSONS = ["vanilla", "d2l", "nlpt-encoder", "odom", "explicando"];

/** Puts links and switches above the page. */
export function frame(lesson = ""): void {
  const header = document.querySelector("header");
  if (header) render(<Header lesson={lesson} />, header);
  if ("serviceWorker" in navigator) {
    addEventListener("load", () => void navigator.serviceWorker.register(new URL("sw.js", document.baseURI)).catch(() => null));
  }
}

function Header({ lesson }: { lesson: string }) {
  const w = words();
  const language = document.documentElement.lang;
  const hasLessons = Boolean(lesson) || "lessons" in document.body.dataset;
  return (
    <nav aria-label={w.title}>
      <a href={`index.html${language === "en" ? "" : `?lang=${language}`}`} aria-current={lesson ? undefined : "page"}>{w.explorer}</a>
      {hasLessons && <span>{w.lessons}:</span>}
      {hasLessons && LESSONS.map((one) => (
        <a key={one} href={`lessons/${language}/${one}.html`} aria-current={one === lesson ? "page" : undefined}>{one}</a>
      ))}
      <span class="end">
        {Object.keys(LANGUAGES).map((one) => (
          <a key={one} lang={one} hreflang={one} href={lesson ? `lessons/${one}/${lesson}.html` : `index.html?lang=${one}`}
            aria-current={one === language ? "true" : undefined}>{one === "en" ? "English" : "Português"}</a>
        ))}
        <Colours />
      </span>
    </nav>
  );
}

function Colours() {
  const w = words();
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (wanted: string) => {
    setTheme(wanted);
    document.documentElement.dataset.theme = wanted;
    try {
      localStorage.setItem("theme", wanted);
    } catch {
      // Without storage it is forgotten with the page.
    }
    document.dispatchEvent(new Event("colours"));
  };
  matchMedia("(prefers-color-scheme: dark)").onchange = () => document.dispatchEvent(new Event("colours"));
  return (
    <label>
      {w.theme}{" "}
      <select value={theme} onChange={(event) => choose((event.currentTarget as HTMLSelectElement).value)}>
        {[["", w.automatic], ["light", w.light], ["dark", w.dark]].map(([one, name]) => (
          <option key={one} value={one} selected={one === theme}>{name}</option>
        ))}
      </select>
    </label>
  );
}
