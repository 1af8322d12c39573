(() => {
  const follow = followPage({
    status: "/.ctxagent/status.json", page: "/", everyMs: 3000, lost: "the proxy does not answer",
  });

  document.querySelector("main").addEventListener("click", async (event) => {
    const button = event.target.closest(".undo");
    if (!button) return;
    button.disabled = true;
    const { session, seq } = button.dataset;
    try {
      const answer = await fetch("/.ctxagent/undo", {
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
