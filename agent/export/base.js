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
})();
