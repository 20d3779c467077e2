// Package afd runs a BERT sentence encoder with its attention in workers and its
// feed-forward nets (FFN) in servers, as disaggregated inference does.
//
// At every layer a worker pushes the activations of a micro-batch to all servers.
// Each server answers with the partial sum of its slice (package model), and the
// worker adds the sums in the order of the servers. While one micro-batch is at the
// servers, the worker computes the attention of the others. Three micro-batches in
// flight keep both sides busy.
//
// Worker and Server are the two programs. Each names the few methods that it needs
// of its node (WorkerNode, ServerNode), so tests run them on nodes that refuse work.
//
// A tensor on the wire is float32 [tokens, hidden]. A key holds the layer, the
// micro-batch's slot and the worker's rank (key.go), so a server keeps nothing between requests
// except its memory. The embeddings are bit for bit those of model.Run with the same split.
package afd
