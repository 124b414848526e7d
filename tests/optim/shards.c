/* See shards.h. */
#include <stdio.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/philox.h"
#include "src/nn/module.h"
#include "src/tensor/tensor.h"
#include "tests/elements.h"
#include "tests/optim/shards.h"

fsdp_status shards_create(const int64_t *rows, int n, int64_t width, fsdp_module **module)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_module_create("Weights", &m));
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < n && status == FSDP_OK; i++) {
        char name[16];
        fsdp_parameter *p;
        snprintf(name, sizeof name, "p%d", i);
        status = fsdp_module_add_parameter(m, name, width ? 2 : 1, (int64_t[]){rows[i], width},
                                           (fsdp_init){.mean = 0.0f}, &p);
    }
    if (status != FSDP_OK) {
        fsdp_module_destroy(m);
        return status;
    }
    *module = m;
    return FSDP_OK;
}

/* This rank's rows of `whole`, in dtype, as a tensor with the shape of p's local tensor. */
static fsdp_status cut_rows(fsdp_parameter *p, const float *whole, fsdp_dtype dtype,
                            fsdp_tensor **rows)
{
    fsdp_tensor *local = fsdp_parameter_local(p), *f32;
    int64_t begin, end;
    fsdp_parameter_rows(p, &begin, &end);
    FSDP_TRY(fsdp_tensor_from_data(fsdp_tensor_device(local), FSDP_DTYPE_F32,
                                   fsdp_tensor_ndim(local), fsdp_tensor_shape(local),
                                   whole + begin * fsdp_tensor_row_numel(local), FSDP_TAG_GRAD,
                                   &f32));
    fsdp_status status = fsdp_tensor_to(f32, dtype, FSDP_TAG_GRAD, rows);
    fsdp_tensor_release(f32);
    return status;
}

fsdp_status shards_set_values(fsdp_parameter *p, const float *whole)
{
    fsdp_tensor *local = fsdp_parameter_local(p), *rows;
    FSDP_TRY(cut_rows(p, whole, fsdp_tensor_dtype(local), &rows));
    fsdp_status status = fsdp_tensor_begin_write(local);
    if (status == FSDP_OK && fsdp_tensor_numel(local))
        elements_changed(local, elements_of(rows));
    if (status == FSDP_OK)
        fsdp_tensor_end_write(local);
    fsdp_tensor_release(rows);
    return status;
}

fsdp_status shards_set_grad(fsdp_parameter *p, const float *whole)
{
    fsdp_tensor *local = fsdp_parameter_local(p), *grad = NULL;
    if (whole)
        FSDP_TRY(cut_rows(p, whole, FSDP_DTYPE_F32, &grad));
    if (whole && fsdp_is_dtensor(local))
        FSDP_TRY(fsdp_dtensor_from_local(grad, fsdp_dtensor_group(local),
                                         fsdp_dtensor_placement(local), fsdp_dtensor_shape(local)));
    fsdp_tensor_release(p->sink.grad);
    p->sink.grad = grad;
    return FSDP_OK;
}

fsdp_status shards_full(fsdp_tensor *local, float *whole)
{
    fsdp_tensor *full;
    FSDP_TRY(fsdp_full_tensor(local, &full));
    fsdp_status status = fsdp_tensor_to_floats(full, whole);
    fsdp_tensor_release(full);
    return status;
}

float shards_random(uint64_t key, int64_t i)
{
    return (float)(int32_t)fsdp_philox4x32(5, key, (uint64_t)i).v[0] * 0x1p-31f;
}
