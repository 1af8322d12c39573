(() => {
  const rows = [...document.querySelectorAll("main tbody tr")];
  const chips = [...document.querySelectorAll(".chip")];
  const words = document.getElementById("words");
  const shown = document.getElementById("shown");
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = new Set(chips.filter((c) => c.ariaPressed === "true").map((c) => c.value));
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = states.has(row.dataset.state) && wanted.every((word) => text.includes(word));
      row.classList.toggle("away", !fits);
      count += fits;
    }
    shown.textContent = count === rows.length ? "" : `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  };
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = String(chip.ariaPressed !== "true");
      filter();
    });
  }
  words.addEventListener("input", filter);
  document.querySelector(".tools").hidden = false;
})();
