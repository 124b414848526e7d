/* The memory of the fake device. As with the memory of a card, the host cannot read or write it: a
 * host that uses it faults, and a line on stderr says why. Under AddressSanitizer, the sanitizer's
 * allocator provides the memory, and the memory is not protected.
 *
 * Note [Protection of fake memory]. If the processor has protection keys (pkeys(7)), all fake
 * memories of the process share one key, and each thread has its own rights to it. A thread can use
 * the memory only between its calls of fsdp_fake_memory_open() and fsdp_fake_memory_close(). Each
 * of these calls takes one instruction. A thread inherits the rights of the thread that creates it,
 * so the worker threads of the stream's kernels are created between the two calls. Without keys, or
 * with the environment variable FSDP_FAKE_KEY=0, the two calls change the protection of all pages.
 * This takes several times as long as the tests themselves, and while one thread uses the memory,
 * all threads can use it. */
#pragma once
#include "src/tensor/allocator.h"

typedef struct fsdp_fake_memory fsdp_fake_memory;

FSDP_MUST_CHECK fsdp_status fsdp_fake_memory_create(fsdp_fake_memory **memory);
/* Free *memory. The allocator that uses it must have been destroyed before. Accepts NULL. */
void fsdp_fake_memory_destroy(fsdp_fake_memory *memory);
/* Return the functions that give an allocator this memory, for fsdp_allocator_create_from(). */
fsdp_memory_source fsdp_fake_memory_source(fsdp_fake_memory *memory);
/* fsdp_fake_memory_open() makes the memory accessible to this thread, and fsdp_fake_memory_close()
 * undoes one such call of the same thread. Any thread may call these functions. */
void fsdp_fake_memory_open(void *memory);
void fsdp_fake_memory_close(void *memory);
