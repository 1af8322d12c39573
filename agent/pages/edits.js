(() => {
  // An empty address is the one of the page.
  const main = document.querySelector("main");
  const { status, page, undo, lost } = main.dataset;
  const follow = followPage({ status, page, lost, everyMs: 3000 });

  main.addEventListener("click", async (event) => {
    const button = event.target.closest(".undo");
    if (!button) return;
    button.disabled = true;
    const { session, seq } = button.dataset;
    try {
      const answer = await fetch(undo, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Ctxagent": "undo" },
        body: JSON.stringify({ session, seq: Number(seq) }),
      });
      if (!answer.ok) throw new Error((await answer.json()).error.message);
      await follow();
    } catch (error) {
      button.disabled = false;
      button.title = button.textContent = String(error.message);
    }
  });
})();
