/* Keys, and the numbers of the groups of a barrier. */
#ifndef STEPVAN_COMPAT_PS_BASE_H
#define STEPVAN_COMPAT_PS_BASE_H

#include <cstdint>
#include <limits>

namespace ps {

using Key = uint64_t;
constexpr Key kMaxKey = std::numeric_limits<Key>::max();

/* Groups are added: kServerGroup + kWorkerGroup. */
constexpr int kScheduler = 1;
constexpr int kServerGroup = 2;
constexpr int kWorkerGroup = 4;

/* What a process is. */
struct Node {
	enum Role { SERVER, WORKER, SCHEDULER, JOINT };
};

} // namespace ps

#endif
