/* The memory of the fake device. As with the memory of a card, the host cannot read or write it:
 * its pages are protected except while the fake stream runs a command or a copy is made. If the
 * host uses the memory at another time, it faults, and a line on stderr says why. Under
 * AddressSanitizer, the sanitizer's allocator provides the memory, and pages are not protected. */
#pragma once
#include "src/tensor/allocator.h"

typedef struct fsdp_fake_memory fsdp_fake_memory;

FSDP_MUST_CHECK fsdp_status fsdp_fake_memory_create(fsdp_fake_memory **memory);
/* Free *memory. The allocator that uses it must have been destroyed before. Accepts NULL. */
void fsdp_fake_memory_destroy(fsdp_fake_memory *memory);
/* Return the functions that give an allocator this memory, for fsdp_allocator_create_from(). */
fsdp_memory_source fsdp_fake_memory_source(fsdp_fake_memory *memory);
/* fsdp_fake_memory_open() makes the memory accessible, and fsdp_fake_memory_close() undoes one such
 * call. The memory is accessible as long as there are more calls of the first than of the second.
 * Any thread may call these functions. */
void fsdp_fake_memory_open(void *memory);
void fsdp_fake_memory_close(void *memory);
