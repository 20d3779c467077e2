/* Names of attributes, interned once. */
#ifndef STEPVAN_NAMES_H
#define STEPVAN_NAMES_H

#define NAMES(X) \
	X(__array_interface__) X(__dlpack__) X(__dlpack_c_exchange_api__) X(c_contiguous) X(data) X(data_ptr) X(device) X(dtype) X(flags) X(is_conj) \
	X(is_contiguous) X(is_cpu) X(is_neg) X(layout) X(numpy) X(requires_grad) X(resizable) X(set_) X(shape) X(view) X(writeable)

#define DECLARE(name) extern PyObject *name_##name;
NAMES(DECLARE)
#undef DECLARE

int names_ready(void);

#endif
