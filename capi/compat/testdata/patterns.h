/* What worker.cc and server.cc have in common: each pattern has its keys, and tells a mistake by ending the program. */
#ifndef PATTERNS_H
#define PATTERNS_H

#include <torch/torch.h>

#include "ps/ps.h"

/* The pattern is in the upper half of a key, so that one server answers all. */
enum Pattern : uint64_t {
	kEcho = 1,   /* push one, pull its double */
	kSum,        /* push several, pull their sum from every server */
	kPull,       /* pull only: multiples of the server's rank + 1 */
	kPush,       /* push one, answered with none */
	kPushMany,   /* push several, answered by nobody */
	kTally,      /* pull how many tensors were pushed so, and the sum of what was in them */
	kRegistered, /* push into a registered buffer */
	kLater,      /* answered from another thread, after the handler has returned */
	kWrong,      /* the server tries wrong answers first */
	kSilent,     /* not answered until kLater has come */
};

constexpr ps::Key KeyOf(Pattern pattern, uint64_t i = 0) { return static_cast<uint64_t>(pattern) << 32 | i; }
constexpr Pattern PatternOf(ps::Key key) { return static_cast<Pattern>(key >> 32); }

constexpr int64_t kNumbers = 7168;
constexpr int64_t kStages = 3; /* exchanges in flight, and chunks of a worker in the registered buffer */
constexpr int kEveryone = ps::kWorkerGroup + ps::kServerGroup;

#define EXPECT(what) PS_CHECK(what)

/* Fails unless a call throws an error of the kind. */
template <typename F> void ExpectError(const char *what, int32_t code, F call)
{
	try {
		call();
	} catch (const ps::Error &error) {
		PS_CHECK_EQ(error.code, code) << what << ": " << stepvan_code_name(error.code) << ": " << error.what();
		return;
	}
	PS_LOG(FATAL) << what << ": no error";
}

int Work();
int Serve();

#endif
