"use strict";
(() => {
  const themes = ["", "light", "dark"];
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const wear = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    button.textContent = theme || "auto";
  };
  button.addEventListener("click", () => {
    wear(themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length]);
  });
  wear("");

  // Open all folded parts for printing.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });
})();
