"""How many cases of the long tests run by default; `-m slow` runs the others.

Tests over many cases cost minutes each, most of it the compiling of one program a case. By default a few are drawn, the
same ones in every run and on every machine: those whose names have the least checksums.
"""

import zlib
from collections import defaultdict

import pytest

CASES = {
    "tests/bundle/test_attack_kit.py": {
        "test_an_honest_bundle_uses_up_what_was_asked_for_and_no_more": 12,
    },
    "tests/bundle/test_attack_nan.py": {
        "test_a_number_of_a_bundle_that_is_none_is_refused_or_changes_nothing": 12,
    },
    "tests/bundle/test_bundle_round_trip.py": {
        "test_what_is_saved_is_read_certified_and_released_again": 6,
    },
    "tests/bundle/test_foreign_text.py": {
        "test_a_weak_policy_is_never_shown_under_the_name_of_a_strong_one": 2,
        "test_text_in_a_bundle_cannot_forge_a_line_on_the_terminal_or_leave_its_place_on_a_page": 3,
    },
    "tests/bundle/test_goals.py": {
        "test_a_bundle_from_before_there_were_goals_is_read": 2,
        "test_a_bundle_is_read_with_its_goal": 4,
    },
    "tests/certificate/test_blocks.py": {
        "test_answers_are_unbiased_and_the_unit_error_is_their_variance": 4,
        "test_bundles_of_blocks_come_back_bit_by_bit": 3,
        "test_edges_in_portions_have_the_same_largest_loss_as_all_at_once": 3,
        "test_releases_have_the_stated_error": 1,
        "test_the_bound_is_below_the_dense_tight_bound": 3,
        "test_the_sensitivity_is_the_largest_loss_over_all_edges": 3,
    },
    "tests/certificate/test_noise_sums.py": {
        "test_a_strategy_that_leaves_moves_open_is_refused": 1,
        "test_every_move_is_taken_up_by_the_noise_of_one_block_at_the_stated_loss": 6,
        "test_releases_have_the_stated_error_and_exact_public_totals": 2,
    },
    "tests/data/test_histogram.py": {
        "test_any_records_are_counted_as_by_the_loop": 2,
    },
    "tests/data/test_histogram_hostile.py": {
        "test_a_damaged_file_gives_counts_or_one_sentence": 1,
    },
    "tests/fit/test_balls.py": {
        "test_releases_have_the_error_that_was_predicted": 1,
    },
    "tests/fit/test_fit.py": {
        "test_light_queries_beside_heavy_ones_are_answered_without_bias": 3,
    },
    "tests/fit/test_goals.py": {
        "test_derivatives_that_jump_are_told_from_smooth_ones": 1,
        "test_the_epsilon_for_a_goal_is_the_smallest_that_meets_it": 5,
    },
    "tests/fit/test_interruptions.py": {
        "test_control_c_after_the_search_keeps_the_strategy": 5,
        "test_control_c_at_a_random_time_exits_with_130_and_keeps_what_there_is": 2,
    },
    "tests/fit/test_norms.py": {
        "test_queries_that_hold_hardly_a_cell_are_fitted_all_the_same": 4,
        "test_small_policies_are_fitted_and_released": 3,
        "test_the_certificate_agrees_with_the_search_which_it_shares_no_code_with": 3,
    },
    "tests/fit/test_options.py": {
        "test_every_option_on_every_path_is_honoured_or_refused": 30,
        "test_seeds_steer_what_draws_random_numbers": 1,
    },
    "tests/fit/test_weights.py": {
        "test_files_of_a_weighted_release_hold_the_queries_as_written": 1,
        "test_rmse_of_weighted_queries_is_that_of_the_answers_as_written": 2,
        "test_weights_change_no_published_answer": 2,
        "test_weights_steer_the_search": 1,
    },
    "tests/house/test_performance.py": {
        "test_memory_is_predicted_within_thirty_percent_of_the_peak": 1,
        "test_no_change_makes_a_strategy_or_a_bound_worse": 4,
    },
    "tests/objectives/test_by_hand.py": {
        "test_by_hand_is_what_jax_derives": 3,
        "test_cell_budgets_by_hand_are_what_jax_derives": 3,
        "test_gram_matrices_in_numpy_are_those_in_jax": 6,
        "test_matrices_with_unit_columns_by_hand_are_what_jax_derives": 3,
    },
    "tests/objectives/test_gradients.py": {
        "test_gradients_through_parametrisations_agree_with_finite_differences": 1,
        "test_gradients_through_product_bases_agree_with_finite_differences": 1,
        "test_the_gradient_of_the_dual_bound_agrees_with_finite_differences": 2,
        "test_values_are_float64_and_gradients_of_the_arguments_type_whatever_the_callers_precision": 1,
        "test_vmap_over_strategies_is_a_loop_and_jit_is_eager": 1,
    },
    "tests/objectives/test_grams.py": {
        "test_a_problems_gram_matrix_is_that_of_the_grounded_queries": 1,
        "test_closed_forms_are_the_matrix": 12,
        "test_differences_are_those_of_the_columns": 1,
        "test_products_and_sums_are_those_of_the_matrices": 1,
    },
    "tests/objectives/test_measures.py": {
        "test_a_diagonal_and_rows_is_the_matrix_written_out": 1,
        "test_no_strategy_is_below_the_dual_bound": 3,
        "test_objectives_of_arrays_are_their_definitions_over_all_and_over_kept_cells": 1,
        "test_over_edges_the_columns_are_measured_themselves": 2,
        "test_product_precisions_are_the_strategy_written_out": 1,
    },
    "tests/objectives/test_minimise.py": {
        "test_the_result_is_never_worse_than_the_start_and_is_where_it_says": 1,
    },
    "tests/objectives/test_parametrisations.py": {
        "test_cell_budgets_have_sensitivity_at_most_one_and_are_the_dense_formula": 1,
        "test_product_bases_have_the_error_of_their_matrix": 1,
        "test_the_hand_written_loss_of_bases_is_that_of_the_public_parts": 2,
    },
    "tests/objectives/test_rank.py": {
        "test_where_there_is_no_inverse_the_gradient_of_variances_is_zero": 1,
        "test_where_there_is_no_inverse_the_total_is_large_and_its_gradient_zero": 1,
    },
    "tests/objectives/test_trees.py": {
        "test_jax_and_numpy_agree_in_value_and_gradient": 1,
    },
    "tests/parallel/test_side_by_side.py": {
        "test_fits_with_workers_give_the_same_bits_twice": 1,
    },
    "tests/release/test_intervals.py": {
        "test_intervals_cover_the_truth_as_often_as_they_say": 2,
    },
    "tests/release/test_ledger_files.py": {
        "test_a_number_that_no_ledger_wrote_is_refused": 35,
    },
    "tests/release/test_postprocessing.py": {
        "test_nonnegative_is_the_nearest_histogram_in_the_norm_of_what_was_measured": 2,
    },
    "tests/release/test_predictions.py": {
        "test_every_prediction_is_that_of_the_release": 1,
    },
    "tests/release/test_release_privacy.py": {
        "test_laplace_floors_are_private": 2,
    },
    "tests/release/test_release.py": {
        "test_answers_to_public_queries_are_exact_whole_numbers": 2,
        "test_simulated_errors_are_those_of_the_plan": 1,
    },
    "tests/report/test_report.py": {
        "test_a_bundle_gives_the_same_page_whenever_it_is_loaded": 1,
        "test_every_kind_of_fit_has_every_section": 1,
    },
    "tests/strategies/test_balls.py": {
        "test_bases_come_within_three_percent_of_the_dense_optimum": 1,
    },
    "tests/strategies/test_gaussian.py": {
        "test_random_policies_reach_the_optimum_of_the_semidefinite_programme": 7,
    },
    "tests/strategies/test_laplace.py": {
        "test_a_fit_is_never_worse_than_any_floor": 1,
        "test_known_ratios_are_reached": 1,
        "test_every_family_gives_strategies_of_the_error_it_says": 3,
        "test_small_and_blind_workloads_run_without_warnings": 1,
    },
    "tests/strategies/test_laplace_floors.py": {
        "test_every_floor_has_the_error_of_its_definition": 1,
        "test_the_papers_and_classical_mechanisms_have_their_known_ratios": 3,
    },
    "tests/strategies/test_laplace_losses.py": {
        "test_both_engines_descend_to_the_same_minimum_of_a_convex_loss": 1,
        "test_gradients_agree_with_finite_differences": 1,
    },
    "tests/strategies/test_largest.py": {
        "test_a_convex_function_of_ones_own_is_as_small_as_in_the_convex_programme": 2,
    },
    "tests/strategies/test_norm.py": {
        "test_every_draft_is_a_proper_tree_norm_with_a_longest_edge_of_one": 2,
    },
    "tests/strategies/test_products.py": {
        "test_bases_come_close_to_the_optimum": 1,
        "test_bases_know_what_is_public_in_parts": 1,
    },
    "tests/strategies/test_structured_against_dense.py": {
        "test_by_factors_is_what_it_says_and_near_the_dense_optimum": 5,
    },
    "tests/strategies/test_products_battery.py": {
        "test_random_products_are_no_worse_than_their_floors_and_bounded_from_below": 4,
    },
    "tests/strategies/test_products_laplace.py": {
        "test_a_grid_strategy_has_unit_columns_and_the_error_of_its_definition": 2,
        "test_a_kronecker_strategy_has_the_sensitivity_and_error_it_says_and_beats_identity": 2,
    },
}
"""File -> test -> number of cases."""


def leave_to_slow(items):
    """Mark the cases of the tests above that are not drawn as slow."""
    cases = defaultdict(list)
    for item in items:
        place, _, name = item.nodeid.partition("::")
        cases[place, name.partition("[")[0]].append(item)
    for (place, name), found in cases.items():
        few = CASES.get(place, {}).get(name)
        if few is not None:
            found = [item for item in found if not item.get_closest_marker("slow")]
            for item in sorted(found, key=lambda item: zlib.crc32(item.nodeid.encode()))[few:]:
                item.add_marker(pytest.mark.slow)
