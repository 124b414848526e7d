/* A hook for tests: see Note [Hooks for tests] in src/base/alloc_testing.h. */
#pragma once
#include "src/kernels/cpu/product.h"

/* Return the number of primitives in the hash table of product_onednn.c; 0 without oneDNN. */
size_t fsdp_cpu_products_count(const fsdp_cpu_products *products);
