/* The accesses of compiled code in the check build: hooks.cpp calls this for each of them. */
#pragma once
#include <stddef.h>

namespace emu
{
/* The program reads or writes n bytes at p; pc is the address after the instruction. */
void access_by_program(const void *p, size_t n, int flags, const void *pc);
} // namespace emu
