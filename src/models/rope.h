/* The angles of rotary position embeddings (Su et al. 2021, arXiv 2104.09864), for fsdp_rope(). */
#pragma once
#include <fsdp/llama.h>

#include "src/autograd/autograd.h"

/* A table with a row of angles for each position. A row is computed when its position is first
 * needed, and is then kept. Only with FSDP_ROPE_DYNAMIC, all rows are computed again whenever the
 * length of the longest sequence changes. */
typedef struct fsdp_rotary fsdp_rotary;

/* Create a table of angles for heads of head_dim elements; head_dim must be even. Returns NULL,
 * with an error message, if there is not enough memory. */
fsdp_rotary *fsdp_rotary_create(const fsdp_rope_config *config, int64_t head_dim);
void fsdp_rotary_destroy(void *rotary); /* accepts NULL; used as a module's impl_destroy */

/* Return the frequencies [head_dim / 2] for sequences that are not longer than the original length.
 * A frequency is the angle, in radians, between one position and the next. */
const float *fsdp_rotary_inv_freq(const fsdp_rotary *rotary);
/* Return the table [positions, head_dim] for fsdp_rope(): cosines, then sines. `positions` is the
 * length of the longest sequence. s owns the table. */
fsdp_tensor *fsdp_rotary_table(fsdp_scope *s, fsdp_rotary *rotary, int64_t positions);
