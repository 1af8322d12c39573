(() => {
  const tools = document.querySelector(".tools");
  const sections = [...document.querySelectorAll("main > section")];
  const hidden = new Set(); // places of hidden settings

  // Hide deselected settings and recordings.
  const show = () => {
    for (const node of document.querySelectorAll("[data-label]")) {
      node.classList.toggle("away", hidden.has(node.dataset.label));
    }
  };
  for (const toggle of tools.querySelectorAll(".toggle")) {
    toggle.addEventListener("click", () => {
      const off = !hidden.delete(toggle.value);
      if (off) hidden.add(toggle.value);
      toggle.setAttribute("aria-pressed", String(!off));
      show();
    });
  }
  const recording = document.getElementById("recording");
  const choose = (id) => {
    for (const section of sections) section.classList.toggle("away", id !== "" && section.id !== id);
  };
  recording?.addEventListener("change", () => choose(recording.value));
  const arrive = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target?.classList.contains("away")) return;
    recording.value = "";
    choose("");
    target.scrollIntoView();
  };
  addEventListener("hashchange", arrive);

  // Keep the tool bar from covering link targets; show a hint next to tables wider than their box.
  const bar = () => document.documentElement.style.setProperty("--tools", `${tools.offsetHeight}px`);
  new ResizeObserver(bar).observe(tools);
  const widths = new ResizeObserver((changed) => {
    for (const { target } of changed) {
      const box = target.closest(".scrolling");
      box.nextElementSibling.hidden = box.scrollWidth <= box.clientWidth;
    }
  });
  for (const each of document.querySelectorAll(".scrolling, .scrolling > table")) widths.observe(each);

  // The path data contains the figures: pairs of call and value.
  const tokens = (count) => {
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      const value = count / size;
      if (value >= 0.9995) return (value >= 99.95 ? value.toFixed(0) : value.toFixed(1)) + unit;
    }
    return String(count);
  };
  const money = (units) => {
    const amount = units / 10000;
    const places = amount > 0 && amount < 0.1 ? 4 : 2;
    return "$" + amount.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  };
  const points = (path) => {
    path.points ??= [...path.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)]
      .map((found) => [Number(found[1]), Number(found[2])]);
    return path.points;
  };
  const nearest = (path, call) => {
    let best = null;
    for (const [number, value] of points(path)) {
      if (path.dataset.group && number === best?.[0]) continue; // the start of an area on the axis
      if (!best || Math.abs(number - call) <= Math.abs(best[0] - call)) best = [number, value];
    }
    return best;
  };

  // All charts of a recording show the same call.
  const together = new Map();
  const NS = "http://www.w3.org/2000/svg";
  const pointed = (figure) => {
    const whole = figure.querySelector(".whole");
    const plane = figure.querySelector(".plane");
    const [first, , calls] = plane.getAttribute("viewBox").split(" ").map(Number);
    const told = figure.dataset.unit === "money" ? money : tokens;
    const output = figure.querySelector(".at");
    const paths = [...plane.querySelectorAll("path")];
    const cursor = document.createElementNS(NS, "line");
    cursor.setAttribute("class", "cursor away");
    cursor.setAttribute("y1", plane.getAttribute("y"));
    cursor.setAttribute("y2", Number(plane.getAttribute("y")) + Number(plane.getAttribute("height")));
    whole.append(cursor);
    let now = 0;

    const tell = (call) => {
      now = Math.min(Math.max(call, 1), calls);
      const x = (100 * (now - first)) / calls + "%";
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.classList.remove("away");
      output.value = "call " + now.toLocaleString("en");
      if (figure.classList.contains("filling")) fill();
      else lines();
    };
    const lines = () => {
      for (const key of figure.querySelectorAll(".lines > li")) {
        const path = paths.find((each) => each.dataset.label === key.dataset.label);
        const found = path && nearest(path, now);
        const ended = !found || points(path).at(-1)[0] < now;
        key.querySelector(".value").textContent = ended ? "–" : told(found[1]);
      }
    };
    const fill = () => {
      let below = 0;
      let all = 0;
      const parts = [];
      for (const path of [...paths].reverse()) {
        const top = nearest(path, now)?.[1] ?? 0;
        if (top > below) parts.push(path.dataset.group + " " + told(top - below));
        below = all = Math.max(below, top);
      }
      figure.querySelector(".value").textContent = told(all) + ": " + parts.join(", ");
    };
    const quiet = () => {
      now = 0;
      cursor.classList.add("away");
      output.value = "";
      for (const value of figure.querySelectorAll(".value")) value.textContent = value.dataset.rest;
    };

    const section = figure.closest("section");
    if (!together.has(section)) together.set(section, []);
    const charts = together.get(section);
    charts.push({ tell, quiet });
    const at = (call) => charts.forEach((each) => each.tell(Math.round(call)));
    const rest = () => charts.forEach((each) => each.quiet());

    const plot = figure.querySelector(".plot");
    const follow = (event) => {
      const box = whole.getBoundingClientRect(); // that of the plane is that of what is drawn
      at(first + ((event.clientX - box.left) / box.width) * calls);
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") rest();
    });
    plot.tabIndex = 0;
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") rest();
      if (step === undefined) return;
      event.preventDefault();
      at(now + step * (event.shiftKey ? 10 : 1));
    });
    plot.addEventListener("blur", rest);
  };
  for (const figure of document.querySelectorAll("figure.chart")) pointed(figure);

  tools.hidden = false;
})();
