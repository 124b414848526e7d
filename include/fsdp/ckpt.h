/**
 * @file
 * Includes the headers for checkpoints: <fsdp/hf.h> (weights in files) and <fsdp/pretrained.h>
 * (loading and saving modules).
 */
#pragma once
#include <fsdp/hf.h>
#include <fsdp/pretrained.h>
