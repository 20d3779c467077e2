// Package afd runs a BERT sentence encoder with its attention in workers and its
// feed-forward nets in servers, as disaggregated inference does: at every layer a
// worker pushes the activations of a micro-batch to all servers, each server
// answers with the partial sum of its slice (package model), and the worker adds
// them in server order. While one micro-batch is at the servers the worker
// computes the attention of the others: three in flight keep both sides busy.
//
// RunWorker and RunServer are the two programs. They see their node through
// Exchange and Inbox, which hold what each calls and nothing more, so tests run
// them without processes or sockets.
//
// On the wire a tensor is float32 [tokens, hidden]. Keys say layer, micro-batch
// and worker (key.go), so a server keeps no state between requests but its memory.
// The embeddings are bit for bit those of model.Run with the same split.
package afd
