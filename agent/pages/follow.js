// Follow a served page: replace each changed section of `main`, by its ID. `status` is a URL that
// answers HEAD with an ETag; `lost` is the text to show if the server does not answer.
// Return a function that checks for changes at once.
const followPage = ({ status, page, everyMs, lost, redrawn = () => {} }) => {
  const state = document.getElementById("state");
  const main = document.querySelector("main");
  const served = new Map(); // the served HTML of each section, by ID
  for (const section of main.children) served.set(section.id, section.outerHTML);

  // Replace changed sections. Keep open details open and the scroll position unchanged.
  const redraw = (fresh) => {
    const seen = [...main.children].find((each) => each.getBoundingClientRect().bottom > 0);
    const top = seen?.getBoundingClientRect().top;
    const focused = document.activeElement?.id;
    const wanted = [...fresh.querySelectorAll("main > section")];
    const ids = new Set(wanted.map((each) => each.id));
    for (const each of [...main.children]) if (!ids.has(each.id)) each.remove();
    wanted.forEach((each, place) => {
      const old = document.getElementById(each.id);
      let now = old;
      if (!old || served.get(each.id) !== each.outerHTML) {
        served.set(each.id, each.outerHTML);
        now = document.importNode(each, true);
        for (const open of old?.querySelectorAll("details[open]") ?? []) {
          const again = now.querySelector("#" + CSS.escape(open.id));
          if (again) again.open = true;
        }
        old?.replaceWith(now);
      }
      if (main.children[place] !== now) main.insertBefore(now, main.children[place] ?? null);
    });
    if (focused && document.activeElement?.id !== focused) {
      document.getElementById(focused)?.focus({ preventScroll: true });
    }
    const after = seen && document.getElementById(seen.id);
    if (after) scrollBy(0, after.getBoundingClientRect().top - top);
  };

  let tag = "";
  let timer = 0;
  const follow = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(status, { method: "HEAD", headers, cache: "no-store" });
      if (answer.ok) {
        const fresh = await fetch(page, { cache: "no-store" });
        redraw(new DOMParser().parseFromString(await fresh.text(), "text/html"));
        redrawn();
        tag = answer.headers.get("ETag") ?? "";
      }
      state.value = "live";
    } catch {
      state.value = lost;
    }
    clearTimeout(timer);
    timer = setTimeout(follow, everyMs);
  };
  addEventListener("visibilitychange", follow);

  document.documentElement.classList.add("live");
  document.querySelector(".tools").hidden = false;
  follow();
  return follow;
};
