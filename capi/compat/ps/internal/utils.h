/* The clock, the stamps of an exchange, and errors of the library. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_UTILS_H
#define STEPVAN_COMPAT_PS_INTERNAL_UTILS_H

#include <ctime>

#include "dmlc/logging.h"
#include "ps/base.h"
#include "ps/internal/env.h"
#include "stepvan.h"

namespace ps {

/* What a call of the library says was wrong: StepMesh ends the process there. */
struct Error : dmlc::Error {
	Error(const std::string &call, const stepvan_error &error)
		: dmlc::Error(call + ": " + error.message), code(error.code), subject(error.subject)
	{
	}
	Error(const std::string &call, int32_t kind, const std::string &message)
		: dmlc::Error(call + ": " + message), code(kind)
	{
	}
	int32_t code;        /* stepvan_code */
	std::string subject; /* as in stepvan_error */
};

/* Throws what a call of the library returned, unless it went well. */
inline void Check(const char *call, int32_t code, const stepvan_error &error)
{
	if (code != STEPVAN_OK)
		throw Error(call, error);
}

/* The library stamps with the time since 1970 by a clock that never steps back; StepMesh's programs
 * compare with times since boot. */
inline uint64_t SinceBoot(int64_t stamp)
{
	static const int64_t boot = [] {
		timespec now;
		clock_gettime(CLOCK_MONOTONIC, &now);
		return stepvan_get_nanosecond() - (now.tv_sec * INT64_C(1000000000) + now.tv_nsec);
	}();
	return stamp == 0 ? 0 : static_cast<uint64_t>(stamp - boot);
}

/* The time in ns since boot, by the clock of FetchTrace. */
inline uint64_t GetNanosecond(bool = true) { return SinceBoot(stepvan_get_nanosecond()); }

/* The stamps of one direction, in ns; 0 for a missing one. */
struct Trace {
	uint64_t pre_start = 0;
	uint64_t start = 0;
	uint64_t postsend = 0;
	uint64_t postrecv = 0;
	uint64_t process = 0;
};

} // namespace ps

#endif
