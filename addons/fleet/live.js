(() => {
  // As `duration_text` in live_page.py.
  const durationText = (seconds) => {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  };
  const tick = () => {
    for (const each of document.querySelectorAll("time[data-since]")) {
      each.textContent = durationText(Math.max(0, Date.now() / 1000 - Number(each.dataset.since)));
    }
  };
  followPage({
    status: location.pathname, page: location.pathname, everyMs: 2000, redrawn: tick,
    lost: "`ctxagent fleet show --serve` has ended",
  });
  setInterval(tick, 1000);
})();
