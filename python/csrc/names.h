/* Names of attributes, interned once. */
#ifndef STEPVAN_NAMES_H
#define STEPVAN_NAMES_H

#define NAMES(X) \
	X(__array_interface__) X(__dlpack__) X(__dlpack_c_exchange_api__) X(_free_weak_ref) X(_new_with_weak_ptr) X(_weak_ref) X(c_contiguous) X(data) \
	X(data_ptr) X(device) X(dtype) X(flags) X(index) X(is_conj) X(is_contiguous) X(is_cpu) X(is_neg) \
	X(layout) X(nbytes) X(new_empty) X(numpy) X(requires_grad) X(resizable) X(set_) X(shape) X(storage_offset) X(stride) X(strides) X(synchronize) X(type) X(view) \
	X(writeable)

#define DECLARE(name) extern PyObject *name_##name;
NAMES(DECLARE)
#undef DECLARE

int names_ready(void);

#endif
