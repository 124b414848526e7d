/* The names of the devices of this build, and the functions for cards. */
#include "src/tensor/cards.h"
#include "src/tensor/device_testing.h"

const char *const fsdp_device_names[] = {
    "cpu",  "meta", "cuda",
#ifdef FSDP_TESTING
    "fake",
#endif
    NULL,
};

const fsdp_card_ops *fsdp_card_functions(void)
{
#ifdef FSDP_HAVE_CUDA
    return &fsdp_cuda_cards;
#else
    return NULL;
#endif
}
