/* The memory of the fake device. Like memory of a card, the host cannot read or write it: its pages
 * are protected except while the fake stream runs commands, or a copy is made. If the host uses the
 * memory at another time, it faults, and a line on stderr says why. Under AddressSanitizer, whose
 * allocator provides the memory, there is no such protection. */
#pragma once
#include "src/tensor/allocator.h"

typedef struct fsdp_fake_memory fsdp_fake_memory;

FSDP_MUST_CHECK fsdp_status fsdp_fake_memory_create(fsdp_fake_memory **memory);
/* The allocator that uses the memory must have been destroyed. Accepts NULL. */
void fsdp_fake_memory_destroy(fsdp_fake_memory *memory);
/* Return a source of this memory for fsdp_allocator_create_from(). */
fsdp_memory_source fsdp_fake_memory_source(fsdp_fake_memory *memory);
/* Make the memory accessible, and end this. Any thread may call these functions. The memory is
 * accessible until each fsdp_fake_memory_open() has had its fsdp_fake_memory_close(). */
void fsdp_fake_memory_open(void *memory);
void fsdp_fake_memory_close(void *memory);
