package tokenizer

import "strings"

// Tokenizer holds the vocabulary and rules of one tokenizer.json.
type Tokenizer struct {
	normalizer    normalizer
	words         *wordPiece
	before, after []int32 // special ids around each sentence
	specials      []special
	limit         int // most ids of a sentence, 0 for no limit
}

// special is a token that is looked for in the raw text and never split.
type special struct {
	text string
	id   int32
}

// VocabSize is one more than the largest id that Encode can return.
func (t *Tokenizer) VocabSize() int { return t.words.size }

// Limit is the most ids that Encode returns, or 0 when the file sets no limit.
func (t *Tokenizer) Limit() int { return t.limit }

// Encode gives the ids of text with the model's special tokens around them, cut
// to the file's truncation length. Any string is accepted; bytes that are not
// UTF-8 are dropped.
func (t *Tokenizer) Encode(text string) []int32 {
	ids := append(make([]int32, 0, len(text)/3+4), t.before...)
	for text != "" {
		plain, hit := t.nextSpecial(text)
		ids = t.encodePlain(ids, text[:plain])
		text = text[plain:]
		if hit != nil {
			ids = append(ids, hit.id)
			text = text[len(hit.text):]
		}
	}
	if room := t.limit - len(t.after); t.limit > 0 && len(ids) > room {
		ids = ids[:room]
	}
	return append(ids, t.after...)
}

// nextSpecial finds the leftmost special token, the longest where several start
// there, and the length of the text before it.
func (t *Tokenizer) nextSpecial(text string) (before int, hit *special) {
	before = len(text)
	for i := range t.specials {
		s := &t.specials[i]
		at := strings.Index(text, s.text)
		if at < 0 || at > before || at == before && hit != nil && len(s.text) <= len(hit.text) {
			continue
		}
		before, hit = at, s
	}
	return before, hit
}

func (t *Tokenizer) encodePlain(ids []int32, text string) []int32 {
	for word := range splitWords(t.normalizer.apply(text)) {
		ids = t.words.encode(ids, word)
	}
	return ids
}
