// Package tokenizer turns text into token ids as BERT models expect them. It reads the
// model's tokenizer.json: normaliser, pre-tokeniser, WordPiece vocabulary, special tokens
// and truncation. The ids equal those of the Hugging Face tokenizers library for the same
// file. (The Go library sugarme/tokenizer gives other ids for 14 of the 58 test cases.)
//
// Parse refuses a file with any other tokenizer than BERT's WordPiece, because wrong
// tokens would go unnoticed. It ignores the file's padding: the model of this example
// works on packed sentences without padding.
//
// A Tokenizer is immutable. Several goroutines may use it at once.
package tokenizer
