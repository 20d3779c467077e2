// Package tokenizer turns text into token ids as BERT models expect them: it
// reads the model's tokenizer.json (normaliser, pre-tokeniser, WordPiece
// vocabulary, special tokens, truncation) and gives the ids that the Hugging
// Face tokenizers library gives for the same file.
//
// Parse refuses a file that asks for anything else than BERT's WordPiece, rather
// than to tokenise it wrongly. The file's padding is ignored: the model of this
// example works on packed sentences without padding.
//
// A Tokenizer is immutable and may be used by several goroutines at once.
package tokenizer
