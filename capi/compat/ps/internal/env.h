/* The settings of the program: what it has set itself goes before the environment of the process. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_ENV_H
#define STEPVAN_COMPAT_PS_INTERNAL_ENV_H

#include <cstdlib>
#include <string>
#include <unordered_map>

namespace ps {

/* Environment is set before StartPS, by one thread. */
class Environment {
public:
	using Settings = std::unordered_map<std::string, std::string>;

	static Environment *Get()
	{
		static Environment environment;
		return &environment;
	}

	/* Replaces everything that was set. */
	static Environment *Init(const Settings &settings)
	{
		Get()->settings_ = settings;
		return Get();
	}

	void set(const char *name, const std::string &value) { settings_[name] = value; }

	/* The value, or nullptr. It stays valid until the name is set again. */
	const char *find(const char *name) const
	{
		auto found = settings_.find(name);
		return found == settings_.end() ? std::getenv(name) : found->second.c_str();
	}

	/* Writes the number, or `otherwise` and returns -1 where the name is not set. */
	int find(const char *name, int *value, int otherwise = -1) const
	{
		const char *text = find(name);
		*value = text == nullptr ? otherwise : std::atoi(text);
		return text == nullptr ? -1 : 0;
	}

	std::string find(const char *name, const std::string &otherwise) const
	{
		const char *text = find(name);
		return text == nullptr ? otherwise : text;
	}

	const Settings &settings() const { return settings_; }

private:
	Settings settings_;
};

template <typename V> V GetEnv(const char *name, V otherwise)
{
	const char *text = Environment::Get()->find(name);
	return text == nullptr ? otherwise : V(text);
}

inline int GetEnv(const char *name, int otherwise)
{
	Environment::Get()->find(name, &otherwise, otherwise);
	return otherwise;
}

} // namespace ps

#endif
