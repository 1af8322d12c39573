(() => {
  const tools = document.querySelector(".tools");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const entries = [...document.querySelectorAll("main > .entry")];
  const MOST = 2000; // maximum number of highlighted matches

  const unfoldAround = (node) => {
    for (let e = node?.parentElement; e; e = e.parentElement) {
      if (e.tagName === "DETAILS") e.open = true;
    }
  };

  // Make an address reachable that is in a folded or filtered part.
  const arrive = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.closest(".away")) clear();
    unfoldAround(target);
    target.scrollIntoView();
  };

  let texts = null; // texts of the entries, collected at the first search
  let unfolded = []; // parts opened by the search
  let places = [];
  let at = -1;

  const occurrences = (entry, wanted) => {
    const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
    const out = [];
    for (let node; (node = walker.nextNode());) {
      if (node.parentElement.className === "teaser") continue; // its text is repeated below
      const text = node.data.toLowerCase();
      for (let i = text.indexOf(wanted); i >= 0; i = text.indexOf(wanted, i + wanted.length)) {
        if (i + wanted.length > node.data.length) break;
        const range = new Range();
        range.setStart(node, i);
        range.setEnd(node, i + wanted.length);
        out.push(range);
      }
    }
    return out;
  };

  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    for (const each of unfolded) each.open = false;
    unfolded = [];
    places = [];
    at = -1;
    globalThis.CSS?.highlights?.delete("found");
    texts ??= entries.map((entry) => entry.textContent.toLowerCase());
    let count = 0;
    entries.forEach((entry, n) => {
      const fits = !wanted || texts[n].includes(wanted);
      entry.classList.toggle("away", !fits);
      if (!fits || !wanted) return;
      count += 1;
      if (places.length < MOST) places.push(...occurrences(entry, wanted));
    });
    for (const { startContainer } of places) {
      for (let e = startContainer.parentElement; e; e = e.parentElement) {
        const head = e.tagName === "DETAILS" && e.querySelector(":scope > summary");
        if (head && !e.open && !head.contains(startContainer)) {
          e.open = true;
          unfolded.push(e);
        }
      }
    }
    if (globalThis.Highlight && places.length) CSS.highlights.set("found", new Highlight(...places));
    found.value = wanted ? `${count} of ${entries.length}` : "";
  };

  const clear = () => {
    search.value = "";
    filter();
  };

  const go = (step) => {
    if (!places.length) return;
    at = (at + step + places.length) % places.length;
    places[at].startContainer.parentElement.scrollIntoView({ block: "center" });
    getSelection().removeAllRanges();
    getSelection().addRange(places[at]);
  };

  let soon = 0;
  search.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(filter, 150);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") clear();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === search) return;
    event.preventDefault();
    search.focus();
  });

  const all = (open) => {
    unfolded = [];
    for (const each of document.querySelectorAll("main details")) each.open = open;
  };
  document.getElementById("unfold").addEventListener("click", () => all(true));
  document.getElementById("fold").addEventListener("click", () => all(false));

  tools.hidden = false;
  addEventListener("hashchange", arrive);
  if (location.hash) arrive();
})();
