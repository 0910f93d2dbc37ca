// What the page uses of `htm/preact/standalone`, for who checks its types.
export function html(strings: TemplateStringsArray, ...values: any[]): any;
export function render(node: any, parent: Element): void;
export function createContext<T>(value: T): { Provider: any };
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(run: () => any, on?: any[]): void;
export function useLayoutEffect(run: () => any, on?: any[]): void;
export function useRef<T>(first: T): { current: T };
export function useMemo<T>(make: () => T, on: any[]): T;
export function useContext(context: any): any;
export function useErrorBoundary(): [any, () => void];
