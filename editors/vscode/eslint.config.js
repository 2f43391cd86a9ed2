import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
    { ignores: ['**/node_modules', '**/dist', '**/bin', 'eslint.config.js'] },
    js.configs.recommended,
    tseslint.configs.strictTypeChecked,
    tseslint.configs.stylisticTypeChecked,
    {
        languageOptions: { parserOptions: { projectService: true } },
        rules: {
            eqeqeq: 'error',
            '@typescript-eslint/switch-exhaustiveness-check': [
                'error',
                { allowDefaultCaseForExhaustiveSwitch: false },
            ],
            // A number in a text is shown as it is.
            '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
        },
    },
);
