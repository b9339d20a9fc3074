// Lets keys scroll tables and cells of notebooks that are wider than the page; the theme does so for other code.
addEventListener("load", () => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .highlight-ipynb")) wide.tabIndex = 0;
});
