/* The elements of tensors, for tests that run on every device. On a device whose memory the host
 * can read, they are the tensor's memory. On other devices they are a copy. */
#pragma once
#include <pthread.h>
#include <stdlib.h>

#include "src/tensor/tensor.h"

enum {
    ELEMENTS_COPIES = 32
};

/* The copies of one thread; the oldest is replaced first. */
typedef struct elements_copies {
    void *at[ELEMENTS_COPIES];
    int next;
} elements_copies;

static inline void elements_free(void *arg)
{
    elements_copies *copies = arg;
    for (int i = 0; i < ELEMENTS_COPIES; i++)
        free(copies->at[i]);
    free(copies);
}

/* Returns memory of `bytes` bytes that is valid until the thread has called this function
 * ELEMENTS_COPIES times more. */
static inline void *elements_alloc(size_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_key_t key;
    static bool has_key;
    pthread_mutex_lock(&lock);
    if (!has_key && pthread_key_create(&key, elements_free) != 0)
        abort();
    has_key = true;
    pthread_mutex_unlock(&lock);
    elements_copies *copies = pthread_getspecific(key);
    if (!copies) {
        copies = calloc(1, sizeof *copies);
        if (!copies || pthread_setspecific(key, copies) != 0)
            abort();
    }
    void **at = &copies->at[copies->next++ % ELEMENTS_COPIES];
    free(*at);
    *at = malloc(bytes + 1);
    return *at;
}

/* Returns the elements of a contiguous tensor, or NULL if it has none or a kernel has failed. A
 * copy is valid until the thread has called this function ELEMENTS_COPIES times more. */
static inline void *elements_of(const fsdp_tensor *t)
{
    if (!fsdp_device_has_own_memory(t->storage->device))
        return fsdp_tensor_data(t);
    const size_t bytes = (size_t)fsdp_tensor_numel(t) * fsdp_dtype_size(t->dtype);
    if (fsdp_tensor_check_data(t) != FSDP_OK)
        return NULL;
    void *copy = elements_alloc(bytes);
    return fsdp_tensor_copy_to_host(t, copy, bytes) == FSDP_OK ? copy : NULL;
}

/* Set the elements to [numel] elements in host memory. Call this after a change of the elements
 * that elements_of() returned. */
static inline void elements_changed(fsdp_tensor *t, const void *elements)
{
    const size_t bytes = (size_t)fsdp_tensor_numel(t) * fsdp_dtype_size(t->dtype);
    if (bytes && elements && elements != fsdp_tensor_ptr(t) &&
        fsdp_tensor_copy_from_host(t, elements, bytes) != FSDP_OK)
        abort();
}
