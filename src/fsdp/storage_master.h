/* Access to the master buffer, for the storages that use it: Note [Master buffer] in
 * param_storage.h. */
#pragma once
#include "src/fsdp/param_storage.h"

/* Return true if p can be stored in the master buffer. */
bool fsdp_fits_in_master(const fsdp_param *p);
/* Return the address of this rank's rows of p in the master buffer; NULL on meta. `size` is the
 * size of an element in the buffer, in bytes. */
void *fsdp_own_rows_in_master(fsdp_param_memory *master, const fsdp_param *p, size_t size);
