/* Tensors that are read back from the file of activation offload. Runs that use it are tested in
 * tests/models/test_activation_checkpointing.c. */
#include "src/autograd/stash.h"
#include "tests/autograd/gradcheck.h"

/* A tensor that nothing else holds is only in the file after two more calls have begun. */
TEST(a_table_in_the_file_stays_a_table)
{
    fsdp_activation_offload *offload;
    fsdp_device *device;
    fsdp_stashed *stashed;
    uint64_t number;
    float before[6], after[6];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_activation_offload_create(
        &(fsdp_activation_offload_options){.dir = fsdp_test_dir(t), .min_bytes = 1}, &offload));
    fsdp_tensor *table = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){6}, 1);
    CHECK_HERE();
    table->is_table = true;
    ASSERT_OK(fsdp_tensor_to_floats(table, before));
    ASSERT_OK(fsdp_offload_begin_call(offload, &number));
    ASSERT_OK(fsdp_stash_put(offload, number, table, &stashed));
    fsdp_tensor_release(table);
    for (int i = 0; i < 2; i++)
        ASSERT_OK(fsdp_offload_begin_call(offload, &number));
    ASSERT_INT(op_allocated(device), 0);
    ASSERT_OK(fsdp_stash_get(stashed, &table));
    ASSERT(table->is_table);
    ASSERT_OK(fsdp_tensor_to_floats(table, after));
    ASSERT(memcmp(before, after, sizeof before) == 0);
    fsdp_tensor_release(table);
    fsdp_stash_drop(stashed);
    fsdp_activation_offload_destroy(offload);
    fsdp_device_destroy(device);
}
