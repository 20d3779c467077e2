package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// wordPiece splits words greedily into the longest known pieces.
type wordPiece struct {
	heads    map[string]int32 // pieces that start a word
	tails    map[string]int32 // pieces that continue one, without their prefix
	unknown  int32
	maxChars int // longer words are unknown
	maxPiece int // bytes of the longest piece
	size     int
}

func newWordPiece(vocab map[string]int32, prefix, unknown string, maxChars int) (*wordPiece, error) {
	id, ok := vocab[unknown]
	if !ok {
		return nil, fmt.Errorf("tokenizer: the unknown token %q is not in the vocabulary", unknown)
	}
	if prefix == "" || maxChars <= 0 {
		return nil, fmt.Errorf("tokenizer: continuing_subword_prefix %q or max_input_chars_per_word %d is unusable", prefix, maxChars)
	}
	w := &wordPiece{
		heads: vocab, tails: make(map[string]int32),
		unknown: id, maxChars: maxChars, size: len(vocab),
	}
	for piece, id := range vocab {
		if id < 0 || int(id) >= len(vocab) {
			return nil, fmt.Errorf("tokenizer: id %d of %q is outside a vocabulary of %d", id, piece, len(vocab))
		}
		if tail, ok := strings.CutPrefix(piece, prefix); ok {
			w.tails[tail] = id
		}
		w.maxPiece = max(w.maxPiece, len(piece))
	}
	return w, nil
}

func (w *wordPiece) checkIDs(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= w.size {
			return fmt.Errorf("tokenizer: special token id %d is outside a vocabulary of %d", id, w.size)
		}
	}
	return nil
}

// encode appends the pieces of word to ids; a word that cannot be composed of
// known pieces is one unknown token.
func (w *wordPiece) encode(ids []int32, word string) []int32 {
	start := len(ids)
	if utf8.RuneCountInString(word) > w.maxChars {
		return append(ids, w.unknown)
	}
	pieces := w.heads
	for word != "" {
		id, n := w.longest(pieces, word)
		if n == 0 {
			return append(ids[:start], w.unknown)
		}
		ids = append(ids, id)
		word, pieces = word[n:], w.tails
	}
	return ids
}

// longest finds the longest piece that word begins with, and its bytes.
func (w *wordPiece) longest(pieces map[string]int32, word string) (id int32, n int) {
	for n = min(len(word), w.maxPiece); n > 0; n-- {
		if n < len(word) && !utf8.RuneStart(word[n]) {
			continue
		}
		if id, ok := pieces[word[:n]]; ok {
			return id, n
		}
	}
	return 0, 0
}
