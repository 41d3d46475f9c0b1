// An error message can be pasted into the search as it is. The search reads "RuntimeError:" as the
// name of a field and "-arch" as a word to leave out, and it matches the beginnings of words, so
// that "is" also finds "issue". So marks become spaces, and of a pasted message only telling words
// stay.
const MARKS = /[-+:;,=!?()[\]{}'"`/\\^~*|<>]/g;
const COMMON_WORDS = new Set(
  `this that with your have from when which please make sure cannot could been were will such file
   error runtimeerror`.split(/\s+/),
);
const SHORTEST_TELLING_WORD = 4;
const SHORTEST_MESSAGE = 4; // Fewer words are a search of one's own, which stays as it is typed.

function withoutMarks(text) {
  return text.replace(MARKS, " ");
}

function tellingWords(message) {
  const words = withoutMarks(message).trim().split(/\s+/);
  if (words.length < SHORTEST_MESSAGE) return words.join(" ");
  const isTelling = (word) =>
    word.length >= SHORTEST_TELLING_WORD &&
    !/^\d/.test(word) &&
    !COMMON_WORDS.has(word.toLowerCase());
  return words.filter(isTelling).join(" ") || words.join(" ");
}

document.addEventListener(
  "input",
  (event) => {
    const box = event.target;
    if (!box.matches?.('[data-md-component="search-query"]')) return;
    const isPasted = event.inputType === "insertFromPaste";
    const words = isPasted ? tellingWords(box.value) : withoutMarks(box.value);
    if (words === box.value) return;
    const place = Math.min(box.selectionStart, words.length);
    box.value = words;
    box.setSelectionRange(place, place);
    // The search listens to keys, and a mouse pastes without one.
    if (isPasted) box.dispatchEvent(new Event("keyup", { bubbles: true }));
  },
  true,
);
