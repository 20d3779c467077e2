/*
 * StepMesh's PS_LOG and PS_CHECK. Lines go to standard error: errors and warnings always, INFO
 * from PS_VERBOSE=1 on. What is fatal is thrown as a dmlc::Error; a program that catches nothing
 * ends with its text.
 */
#ifndef STEPVAN_COMPAT_DMLC_LOGGING_H
#define STEPVAN_COMPAT_DMLC_LOGGING_H

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace dmlc {

struct Error : std::runtime_error {
	using std::runtime_error::runtime_error;
};

inline void InitLogging(const char *) {}

/* One line of the log, written when the statement ends. */
class LogLine {
public:
	explicit LogLine(const char *severity) { text_ << severity << ' '; }
	LogLine(const LogLine &) = delete;
	LogLine &operator=(const LogLine &) = delete;
	~LogLine()
	{
		text_ << '\n'; /* one write, so that the lines of several processes do not mix */
		std::cerr << text_.str() << std::flush;
	}
	std::ostream &stream() { return text_; }

private:
	std::ostringstream text_;
};

/* An error, thrown when the statement ends. */
class FatalLine {
public:
	FatalLine(const char *file, int line) { text_ << file << ':' << line << ": "; }
	FatalLine(const FatalLine &) = delete;
	FatalLine &operator=(const FatalLine &) = delete;
	~FatalLine() noexcept(false) { throw Error(text_.str()); }
	std::ostream &stream() { return text_; }

private:
	std::ostringstream text_;
};

/* Gives both branches of a conditional expression the type void. */
struct Ignore {
	void operator&(std::ostream &) const {}
};

template <typename T> T NotNull(const char *file, int line, const char *what, T value)
{
	if (value == nullptr)
		FatalLine(file, line).stream() << what << " is null";
	return value;
}

} // namespace dmlc

namespace ps {
inline int PS_VERBOSE = std::getenv("PS_VERBOSE") == nullptr ? 0 : std::atoi(std::getenv("PS_VERBOSE"));
} // namespace ps

#define STEPVAN_LOG_AT(level, severity) \
	(level) > ps::PS_VERBOSE ? (void)0 : dmlc::Ignore() & dmlc::LogLine(severity).stream()
#define STEPVAN_LOG_ERROR STEPVAN_LOG_AT(0, "ERROR")
#define STEPVAN_LOG_WARNING STEPVAN_LOG_AT(0, "WARNING")
#define STEPVAN_LOG_INFO STEPVAN_LOG_AT(1, "INFO")
#define STEPVAN_LOG_TRACE STEPVAN_LOG_AT(2, "TRACE")
#define STEPVAN_LOG_ALL STEPVAN_LOG_AT(3, "ALL")
#define STEPVAN_LOG_FATAL dmlc::Ignore() & dmlc::FatalLine(__FILE__, __LINE__).stream()

#define PS_LOG(severity) STEPVAN_LOG_##severity
#define PS_VLOG(level) STEPVAN_LOG_AT(level, "VERBOSE")
#define LL PS_LOG(ERROR)

#define PS_CHECK(x) (x) ? (void)0 : STEPVAN_LOG_FATAL << "not so: " #x " "
#define PS_CHECK_EQ(x, y) PS_CHECK((x) == (y))
#define PS_CHECK_NE(x, y) PS_CHECK((x) != (y))
#define PS_CHECK_LT(x, y) PS_CHECK((x) < (y))
#define PS_CHECK_LE(x, y) PS_CHECK((x) <= (y))
#define PS_CHECK_GT(x, y) PS_CHECK((x) > (y))
#define PS_CHECK_GE(x, y) PS_CHECK((x) >= (y))
#define PS_CHECK_NOTNULL(x) dmlc::NotNull(__FILE__, __LINE__, #x, (x))

#endif
