// Error messages are pasted into the search as they are. The search reads "RuntimeError:" as the
// name of a field and "-arch" as a word to leave out, so marks become spaces.
document.addEventListener(
  "input",
  (event) => {
    const box = event.target;
    if (!box.matches?.('[data-md-component="search-query"]')) return;
    const words = box.value.replace(/[-+:;,=!?()[\]{}'`/\\^~*|<>]/g, " ");
    if (words === box.value) return;
    const place = box.selectionStart;
    box.value = words;
    box.setSelectionRange(place, place);
  },
  true,
);
