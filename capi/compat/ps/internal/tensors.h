/* Tensors of torch as those of stepvan.h, and what keeps them alive while the library uses them. */
#ifndef STEPVAN_COMPAT_PS_INTERNAL_TENSORS_H
#define STEPVAN_COMPAT_PS_INTERNAL_TENSORS_H

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/internal/utils.h"

namespace ps {

struct KeyTensor {
	Key key = 0;
	at::Tensor val;
};

typedef std::vector<KeyTensor> KeyTensorBatch;

namespace internal {

struct DType {
	at::ScalarType torch;
	uint8_t stepvan;
};

inline const std::vector<DType> &DTypes()
{
	static const std::vector<DType> all = {
		{at::kBool, STEPVAN_BOOL},
		{at::kByte, STEPVAN_UINT8},
		{at::kChar, STEPVAN_INT8},
		{at::kShort, STEPVAN_INT16},
		{at::kInt, STEPVAN_INT32},
		{at::kLong, STEPVAN_INT64},
		{at::kHalf, STEPVAN_FLOAT16},
		{at::kBFloat16, STEPVAN_BFLOAT16},
		{at::kFloat, STEPVAN_FLOAT32},
		{at::kDouble, STEPVAN_FLOAT64},
		{at::kComplexHalf, STEPVAN_COMPLEX32},
		{at::kComplexFloat, STEPVAN_COMPLEX64},
		{at::kComplexDouble, STEPVAN_COMPLEX128},
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
		{at::ScalarType::UInt16, STEPVAN_UINT16},
		{at::ScalarType::UInt32, STEPVAN_UINT32},
		{at::ScalarType::UInt64, STEPVAN_UINT64},
		{at::ScalarType::Float8_e4m3fn, STEPVAN_FLOAT8_E4M3FN},
		{at::ScalarType::Float8_e5m2, STEPVAN_FLOAT8_E5M2},
		{at::ScalarType::Float8_e4m3fnuz, STEPVAN_FLOAT8_E4M3FNUZ},
		{at::ScalarType::Float8_e5m2fnuz, STEPVAN_FLOAT8_E5M2FNUZ},
#endif
	};
	return all;
}

inline at::ScalarType TorchType(uint8_t dtype)
{
	for (const DType &d : DTypes())
		if (d.stepvan == dtype)
			return d.torch;
	throw Error("tensor", STEPVAN_NOT_SUPPORTED, "this version of torch has no element type for number " + std::to_string(dtype));
}

inline uint8_t StepvanType(at::ScalarType type)
{
	for (const DType &d : DTypes())
		if (d.torch == type)
			return d.stepvan;
	throw Error("tensor", STEPVAN_NOT_SUPPORTED, std::string("element type ") + at::toString(type) + " cannot travel: convert the tensor");
}

/* Describes a tensor where it lies; it stays the caller's to keep. */
inline stepvan_tensor Describe(const at::Tensor &t)
{
	if (!t.defined() || !t.device().is_cpu() || !t.is_contiguous())
		throw Error("tensor", STEPVAN_INVALID, "a tensor must be defined, on the CPU and contiguous: copy it first");
	if (t.dim() > STEPVAN_MAX_RANK)
		throw Error("tensor", STEPVAN_INVALID, std::to_string(t.dim()) + " dimensions; 8 at most: reshape it");
	stepvan_tensor described = {};
	described.data = t.data_ptr();
	described.bytes = t.nbytes();
	described.dtype = StepvanType(t.scalar_type());
	described.rank = static_cast<uint8_t>(t.dim());
	std::copy(t.sizes().begin(), t.sizes().end(), described.shape);
	return described;
}

/* Keeps tensors until the library tells that nobody uses them. A program that uses this header leaves
 * stepvan_released to it. Any thread. */
class Owners {
public:
	static Owners *Get()
	{
		static Owners *all = new Owners; /* for ever: the library may use tensors until the process ends */
		return all;
	}

	/* Returns the owner for an operation that keeps these tensors. */
	uint64_t Keep(std::vector<at::Tensor> tensors)
	{
		std::lock_guard<std::mutex> lock(mu_);
		kept_.emplace(++last_, std::move(tensors));
		return last_;
	}

	/* Gives back what an operation has not taken. */
	void Drop(uint64_t owner)
	{
		std::vector<at::Tensor> gone; /* declared first: tensors end after the unlock */
		std::lock_guard<std::mutex> lock(mu_);
		Take(owner, &gone);
	}

	/* Drops the tensors that the library has released. */
	void Collect()
	{
		uint64_t owners[64];
		uint64_t n;
		while ((n = stepvan_released(owners, 64)) > 0) {
			std::vector<at::Tensor> gone;
			std::lock_guard<std::mutex> lock(mu_);
			for (uint64_t i = 0; i < n; i++)
				Take(owners[i], &gone);
		}
	}

	/* How many operations keep tensors. */
	size_t size()
	{
		std::lock_guard<std::mutex> lock(mu_);
		return kept_.size();
	}

private:
	void Take(uint64_t owner, std::vector<at::Tensor> *gone)
	{
		auto found = kept_.find(owner);
		if (found == kept_.end())
			return;
		std::move(found->second.begin(), found->second.end(), std::back_inserter(*gone));
		kept_.erase(found);
	}

	std::mutex mu_;
	uint64_t last_ = 0;
	std::unordered_map<uint64_t, std::vector<at::Tensor>> kept_;
};

} // namespace internal
} // namespace ps

#endif
