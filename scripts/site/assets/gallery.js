// Shows the variants of the gallery that have every word that was chosen.
for (const filter of document.querySelectorAll(".gallery-filter")) {
  filter.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    const wanted = [...filter.querySelectorAll('[aria-pressed="true"]')].map((one) => one.dataset.word);
    let shown = 0;
    for (const card of document.querySelectorAll(".gallery-card")) {
      const words = card.dataset.words.split(" ");
      card.hidden = !wanted.every((word) => words.includes(word));
      shown += !card.hidden;
    }
    document.querySelector(".gallery-none").hidden = shown > 0;
  });
}
