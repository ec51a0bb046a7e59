// SPDX-License-Identifier: Apache-2.0
// A library that something may need.
extern "C" void lockstep_made_up() {}
