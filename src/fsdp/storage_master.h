/* The master buffer, for parameters that are stored in it otherwise than as they are read. */
#pragma once
#include "src/fsdp/param_storage.h"

/* Can own rows of p, or a part of them, be read where they are stored? */
bool fsdp_fits_in_master(const fsdp_param *p);
/* This rank's rows of p in the master memory, of elements of `size` bytes; NULL on meta. */
void *fsdp_own_rows_in_master(fsdp_param_memory *master, const fsdp_param *p, size_t size);
