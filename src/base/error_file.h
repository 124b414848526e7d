/* The file in which `fsdp launch` gets the error message of a rank. The launcher prints the message
 * of the rank that failed first. So an error that all ranks have is printed once, and not by each
 * of them. */
#pragma once
#include <stdbool.h>

/* If `fsdp launch` started this process, write `message` to the file for the launcher. Return false
 * if `fsdp launch` did not start this process, or if the file cannot be written. The process must
 * then print the message itself. */
bool fsdp_error_file_write(const char *message);
