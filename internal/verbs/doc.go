// Package verbs is the boundary to RDMA: libibverbs, librdmacm, and libmlx5 for ports of a bond. It is the only package
// that knows their functions and layouts.
//
//   - The libraries are opened when [Load] is called, and never linked or shipped. A program that never calls it starts
//     without them. abi.h declares what is used of their interfaces, so a build needs a C compiler and no header of
//     theirs. A test holds abi.h against the headers of the system.
//   - Without cgo, Load returns [ErrNotInBuild], and no other function can be reached.
//   - Each object has one owner and one Close. Closing twice is harmless. Closing an object that another still uses is
//     an [InUseError], which names the users. [Library.Live] lists what is open.
//   - Posting and polling do not allocate. Requests, segments and completions are in memory of C ([SendChain],
//     [ReceiveChain], [Completions]). A chain is one call of C and one doorbell, however long it is. A batch of
//     completions is one call.
//   - [QP.PostSend] has one caller at a time, and so have [QP.PostReceive], [CQ.Poll] with [CQ.Arm], and Next of a
//     channel. None of them may run together with the Close of its object. All other functions may be called
//     concurrently.
//   - Descriptors of event channels, completion channels and devices do not block, and belong to their objects.
//
// Calls that fail are an [Error], requests that fail a [CompletionError]. The package logs nothing.
package verbs
