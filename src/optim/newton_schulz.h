/* The Newton-Schulz iteration of Muon (Jordan et al. 2024), which makes a matrix orthogonal, as
 * torch.optim.Muon computes it in bfloat16. */
#pragma once
#include <fsdp/optim.h>
#include <fsdp/tensor.h>

/* Memory for one iteration at a time. m is the shorter side of the matrix. */
typedef struct fsdp_newton_schulz {
    fsdp_device *device;
    fsdp_tensor *gram, *polynomial; /* [m, m] bfloat16 */
    fsdp_tensor *square;            /* [m, m] float32 */
    fsdp_tensor *product;           /* the whole matrix in float32 */
    fsdp_tensor *sums;              /* a double for each row */
} fsdp_newton_schulz;

/* Allocate memory for matrices of at most `numel` elements, `rows` rows and a shorter side of
 * `side`. The caller closes *n even after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_newton_schulz_open(fsdp_device *device, int64_t numel,
                                                    int64_t side, int64_t rows,
                                                    fsdp_newton_schulz *n);
void fsdp_newton_schulz_close(fsdp_newton_schulz *n);
/* Make the bfloat16 matrix x [rows, cols] orthogonal. ns_coefficients, ns_steps and eps are those
 * of `options`. x is first divided by its norm, which is rounded to bfloat16, as in torch. */
FSDP_MUST_CHECK fsdp_status fsdp_newton_schulz_run(const fsdp_newton_schulz *n,
                                                   const fsdp_muon_options *options, int64_t rows,
                                                   int64_t cols, void *x);
