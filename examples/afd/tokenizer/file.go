package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
)

// file is tokenizer.json, as far as it matters here.
type file struct {
	Truncation *struct {
		MaxLength int `json:"max_length"`
	} `json:"truncation"`
	AddedTokens []struct {
		ID         int32  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
	} `json:"added_tokens"`
	Normalizer   normalizer `json:"normalizer"`
	PreTokenizer struct {
		Type string `json:"type"`
	} `json:"pre_tokenizer"`
	PostProcessor template `json:"post_processor"`
	Model         struct {
		Type     string           `json:"type"`
		Unknown  string           `json:"unk_token"`
		Prefix   string           `json:"continuing_subword_prefix"`
		MaxChars int              `json:"max_input_chars_per_word"`
		Vocab    map[string]int32 `json:"vocab"`
	} `json:"model"`
}

// template says which special tokens stand around a sentence.
type template struct {
	Type   string `json:"type"`
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID string `json:"id"`
		} `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

// Open reads and checks the tokenizer.json at path.
func Open(path string) (*Tokenizer, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse checks the text of a tokenizer.json and builds a Tokenizer from it.
func Parse(raw []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: not a tokenizer.json: %w", err)
	}
	if err := f.checkTypes(); err != nil {
		return nil, err
	}
	words, err := newWordPiece(f.Model.Vocab, f.Model.Prefix, f.Model.Unknown, f.Model.MaxChars)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{normalizer: f.Normalizer, words: words}
	if err := t.setTemplate(f.PostProcessor); err != nil {
		return nil, err
	}
	if err := t.setSpecials(&f); err != nil {
		return nil, err
	}
	return t, t.setLimit(&f)
}

func (f *file) checkTypes() error {
	for _, part := range []struct{ name, got, want string }{
		{"normalizer", f.Normalizer.Type, "BertNormalizer"},
		{"pre_tokenizer", f.PreTokenizer.Type, "BertPreTokenizer"},
		{"model", f.Model.Type, "WordPiece"},
		{"post_processor", f.PostProcessor.Type, "TemplateProcessing"},
	} {
		if part.got != part.want {
			return fmt.Errorf("tokenizer: %s is %q; only %s is understood", part.name, part.got, part.want)
		}
	}
	return nil
}

func (t *Tokenizer) setTemplate(p template) error {
	side := &t.before
	for _, piece := range p.Single {
		switch {
		case piece.SpecialToken != nil:
			ids := p.SpecialTokens[piece.SpecialToken.ID].IDs
			if err := t.words.checkIDs(ids); err != nil {
				return err
			}
			*side = append(*side, ids...)
		case piece.Sequence != nil && side == &t.before:
			side = &t.after
		default:
			return fmt.Errorf("tokenizer: post_processor must hold special tokens and one sequence")
		}
	}
	if side != &t.after {
		return fmt.Errorf("tokenizer: post_processor has no sequence")
	}
	return nil
}

func (t *Tokenizer) setSpecials(f *file) error {
	for _, a := range f.AddedTokens {
		if a.SingleWord || a.LStrip || a.RStrip || a.Normalized || a.Content == "" {
			return fmt.Errorf("tokenizer: added token %q has options that are not understood", a.Content)
		}
		if err := t.words.checkIDs([]int32{a.ID}); err != nil {
			return err
		}
		t.specials = append(t.specials, special{a.Content, a.ID})
	}
	return nil
}

func (t *Tokenizer) setLimit(f *file) error {
	if f.Truncation == nil {
		return nil
	}
	t.limit = f.Truncation.MaxLength
	if t.limit < len(t.before)+len(t.after) {
		return fmt.Errorf("tokenizer: truncation to %d tokens leaves no room for the special ones", t.limit)
	}
	return nil
}
